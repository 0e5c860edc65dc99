"""A package, so that ``tests`` is this folder even where a library has installed a package of that name."""
