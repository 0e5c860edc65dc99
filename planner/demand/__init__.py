"""Pure arrays: growth, season, daily and weekly shape, noise, token mixes."""
