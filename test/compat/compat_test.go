package compat

import (
	"encoding/json"
	"errors"
	"flag"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// release is the version whose additions are written.
var release = flag.String("release", "", "add what is new to testdata, as promised since this version")

const root = "../.."

// loaded has the packages whose types tests compare.
var loaded = sync.OnceValues(func() (map[string]Package, error) {
	return Load(root, "internal/cli/...", "internal/cluster/record", "internal/cluster/member", "internal/cluster/hold",
		"internal/lab/history", "internal/lab/result", "internal/store", "internal/model",
		"internal/gateway/serving", "internal/proxy")
})

func packages(t *testing.T) map[string]Package {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// kept compares the types with the documents in a directory of testdata, one per type. With -release it adds what is
// new to them first.
func kept(t *testing.T, dir string, now map[string]types.Type) {
	t.Helper()
	dir = filepath.Join("testdata", dir)
	for name, typ := range now {
		file := filepath.Join(dir, name+".json")
		shape := Shape(typ)
		older, err := readJSON(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if *release != "" && len(Lost(older, shape)) == 0 {
			writeJSON(t, file, Union(older, shape))
		}
		for _, what := range Lost(older, shape) {
			t.Errorf("%s: %s, which %s promises", name, what, file)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); now[name] == nil {
			t.Errorf("nothing has the type %s, which %s promises: if it has another name now, rename the file", name, file)
		}
	}
	if len(files) == 0 {
		t.Errorf("%s has no documents", dir)
	}
}

func readJSON(file string) (v any, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal(text, &v)
}

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPrintedJSON: commands print each field that an earlier release has printed with -o json.
func TestPrintedJSON(t *testing.T) {
	all, err := Printed(packages(t))
	if err != nil {
		t.Fatal(err)
	}
	kept(t, "printed", all)
}

// TestRecords: the records of a cluster have each field that an earlier release has written.
func TestRecords(t *testing.T) {
	scope := packages(t)["internal/cluster/record"].Scope()
	all := map[string]types.Type{}
	for _, name := range scope.Names() {
		object, is := scope.Lookup(name).(*types.TypeName)
		if is && object.Exported() {
			if _, is := object.Type().Underlying().(*types.Struct); is {
				all[name] = object.Type()
			}
		}
	}
	kept(t, "records", all)
}

// typesOf returns types by their packages and names.
func typesOf(t *testing.T, names map[string][]string) map[string]types.Type {
	t.Helper()
	all := map[string]types.Type{}
	for of, names := range names {
		for _, name := range names {
			object := packages(t)[of].Scope().Lookup(name)
			if object == nil {
				t.Fatalf("package %s has no type %s", of, name)
			}
			all[filepath.Base(of)+"."+name] = object.Type()
		}
	}
	return all
}

// TestStoredTypes: the files of a host have each field that an earlier release has stored.
func TestStoredTypes(t *testing.T) {
	kept(t, "stored", typesOf(t, map[string][]string{"internal/store": {"Record"}, "internal/model": {"Desired"},
		"internal/cluster/member": {"file"}, "internal/cluster/hold": {"memories"}, "internal/lab/history": {"Entry"},
		"internal/lab/result": {"Report"}}))
}

// TestMessages: processes of two versions exchange messages during an upgrade, and so do nodes of a cluster. The messages
// have each field that an earlier release has sent.
func TestMessages(t *testing.T) {
	kept(t, "messages", typesOf(t, map[string][]string{"internal/gateway/serving": {"request", "response"},
		"internal/proxy":          {"request", "response", "handoverMessage"},
		"internal/cluster/member": {"joinRequest", "joinAnswer", "Pong", "refusal"}}))
}
