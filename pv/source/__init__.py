"""Read the code of a project without importing it: resolve names, walk syntax trees, digest and edit source."""
