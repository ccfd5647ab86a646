"""Files of a local folder: opened by paths without links, hashed in one reading, put into a static tree."""
