"""The local web server: runs that are watched and steered, and tables that are played at."""
