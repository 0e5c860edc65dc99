"""What each kind of answer consists of: its tables, its summary, what the terminal says and the sections of its report.

Each is made once, as tables, figures and sentences, which the renderers of ``planner.output`` turn into files.
"""
