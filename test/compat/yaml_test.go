package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"fairlead/internal/frontend/file"
)

// TestDeclarations reads files with all fields that releases have had. What they declare is written with the same
// names and values.
func TestDeclarations(t *testing.T) {
	files, err := filepath.Glob("testdata/declared/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("the files are %v, %v", files, err)
	}
	for _, path := range files {
		set, err := file.Read([]file.Input{{Name: path, Text: read(t, path)}})
		if err != nil {
			t.Errorf("%s is not accepted any more: %v", path, err)
			continue
		}
		var text bytes.Buffer
		var now any
		if err := file.WriteJSON(&text, set.Spec); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text.Bytes(), &now); err != nil {
			t.Fatal(err)
		}
		written := path[:len(path)-len(".yaml")] + ".json"
		if *release != "" {
			writeOnce(t, written, now)
		}
		older, err := readJSON(written)
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range missing(older, now, "") {
			t.Errorf("%s, written again: %s", path, what)
		}
	}
}

// writeOnce writes a document, unless there is one.
func writeOnce(t *testing.T, file string, v any) {
	t.Helper()
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		writeJSON(t, file, v)
	}
}
