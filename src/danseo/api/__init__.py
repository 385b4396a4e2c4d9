"""The Python interface: the functions of `import danseo`, their results, and the listings of commands."""
