"""Numbers about a meta-game as arrays: clusters of policies, embeddings in a plane, the response graph, diversity."""
