"""Reading the files of a log for people: everything that is in them, and every damage."""
