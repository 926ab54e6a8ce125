package main

import (
	"path/filepath"
	"strings"
)

// isLicence reports whether a file with that name contains a licence.
func isLicence(path string) bool {
	name := strings.ToUpper(filepath.Base(path))
	return strings.HasPrefix(name, "LICEN") || strings.HasPrefix(name, "COPYING")
}

// isNotice reports whether a file with that name belongs to the licence.
func isNotice(path string) bool {
	name := strings.ToUpper(filepath.Base(path))
	return name == "NOTICE" || name == "PATENTS"
}

// identify returns the SPDX identifiers of the licences in a text, or none if it recognizes none.
func identify(text string) []string {
	words := strings.ToLower(strings.Join(strings.Fields(text), " "))
	has := func(all ...string) bool {
		for _, s := range all {
			if !strings.Contains(words, s) {
				return false
			}
		}
		return true
	}
	var found []string
	if has("apache license") && has("version 2.0") {
		found = append(found, "Apache-2.0")
	}
	if has("redistribution and use in source and binary forms") {
		if has("endorse or promote") {
			found = append(found, "BSD-3-Clause")
		} else {
			found = append(found, "BSD-2-Clause")
		}
	}
	if has("permission is hereby granted, free of charge", "without restriction") {
		found = append(found, "MIT")
	}
	if has("cc0 1.0 universal") {
		found = append(found, "CC0-1.0")
	}
	return found
}
