"""The reference part of the docs, written from the code so that it cannot disagree with it."""
