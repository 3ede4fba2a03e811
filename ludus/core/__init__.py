"""What every other package rests on: records, errors, random streams, configuration, parts by name, files, arrays, timings."""
