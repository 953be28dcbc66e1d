WHO = "vendor"
