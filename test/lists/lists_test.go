package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestListsAreGenerated checks that the tree has the lists that follow from the rows of the model.
func TestListsAreGenerated(t *testing.T) {
	for path, want := range lists() {
		got, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is stale (%v): run `make generate`", path, err)
		}
	}
}
