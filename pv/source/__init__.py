"""Read the code of a project without importing it: resolve names, walk syntax trees, digest and edit source.

project  the `[tool.pv]` table: folders of code, contracts and evidence; is a file the user's, pv's or a library's?
resolve  names in a contract -> files and definitions; the parameters of a function
imports  which files and libraries a file imports, directly and through other files
syntax   walks syntax trees: definitions, imports, blocks, statements
digest   digests of source that comments, docstrings and layout do not change
pieces   the parts of a module on which a result can depend separately
patch    finds expressions and statements by their syntax tree, and replaces one of them: the edit of a mutant
"""
