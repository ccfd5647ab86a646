"""Content of resources that lie in files: of sets with a folder, and of push sets whose provider names one."""
