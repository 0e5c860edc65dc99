"""Hardware, models, software, tariffs and priors: data with sources, and the code that reads them."""
