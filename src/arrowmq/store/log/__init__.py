"""The commit log: files of equal size that follow one another, preparing the next, walking records by their bytes."""
