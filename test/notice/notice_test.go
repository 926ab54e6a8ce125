package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fairlead/test/compiled"
)

// TestNoticeHasEveryModule compares NOTICE with the linker's data in a binary, which does not come
// from `go list`.
func TestNoticeHasEveryModule(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "fairlead")
	if err := compiled.Fairlead(binary); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) == 0 {
		t.Fatal("the binary has no modules")
	}
	for _, m := range info.Deps {
		if !bytes.Contains(text, []byte("\n"+m.Path+" "+m.Version+"\n\n")) {
			t.Errorf("NOTICE has no text of %s %s: run make generate", m.Path, m.Version)
		}
	}
}

// TestIdentify checks that an unknown text does not get the name of a known licence.
func TestIdentify(t *testing.T) {
	for text, want := range map[string][]string{
		"All rights reserved.":                       nil,
		"Apache License\n Version 2.0, January 2004": {"Apache-2.0"},
		"Permission is hereby granted, free\nof charge, to any person, to deal in the Software without restriction":         {"MIT"},
		"Permission is hereby granted, free of charge, for non-commercial use":                                              nil,
		"Redistribution and use in source and binary forms are permitted":                                                   {"BSD-2-Clause"},
		"Redistribution and use in source and binary forms … may be used to endorse or promote products":                    {"BSD-3-Clause"},
		"Licensed under the Apache License, Version 2.0\nPermission is hereby granted, free of charge, without restriction": {"Apache-2.0", "MIT"},
	} {
		if got := identify(text); !slices.Equal(got, want) {
			t.Errorf("identify(%q) = %q, want %q", text, got, want)
		}
	}
}
