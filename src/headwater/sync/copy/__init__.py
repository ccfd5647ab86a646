"""The files of a copy: their names, their places, what is there already and what was left half done."""
