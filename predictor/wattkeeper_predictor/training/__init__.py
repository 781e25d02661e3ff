"""Everything that needs measured runs: reading, fitting, evaluating. Not imported to predict."""
