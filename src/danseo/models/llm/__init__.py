"""Language models that answer in words: what they are asked, how their replies are read, and where these come from."""
