"""Finding, checking and fetching data; its halves; users' own lines."""
