"""Who answers the decisions: policy copies in the worker, or a server that many workers share."""
