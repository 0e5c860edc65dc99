"""Tests of the planner; a package, so that no installed package of the same name can stand in its way."""
