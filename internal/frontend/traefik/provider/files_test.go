package provider

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// TestFilesChange checks that a file that an editor replaces, and a file in a new
// directory, are read.
func TestFilesChange(t *testing.T) {
	dir := t.TempDir()
	write := func(name, rule string) {
		t.Helper()
		text := "http:\n  routers:\n    " + filepath.Base(name)[:1] + ":\n      rule: " + rule + "\n      service: s\n"
		whole := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(whole), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(whole+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(whole+".new", whole); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yml", "Path(`/1`)")
	until := followFiles(t, gateway.File{Directory: dir})
	until("a@file", "Path(`/1`)")
	write("a.yml", "Path(`/2`)")
	until("a@file", "Path(`/2`)")
	write("sub/b.yaml", "Path(`/3`)")
	until("b@file", "Path(`/3`)")
	write("sub/b.yaml", "Path(`/4`)")
	until("b@file", "Path(`/4`)")
}

// followFiles follows files until the end of the test, and returns what waits until a router has a
// rule, or is gone if the rule is "".
func followFiles(t *testing.T, value gateway.File) (until func(name, rule string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	states := make(chan gateway.Config)
	var following sync.WaitGroup
	following.Go(func() {
		files := &Files{value, slog.New(slog.DiscardHandler)}
		files.Follow(ctx, func(c gateway.Config, _ []traefik.Problem) {
			select {
			case states <- c:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(following.Wait)
	t.Cleanup(cancel)
	return func(name, rule string) {
		t.Helper()
		for {
			select {
			case c := <-states:
				if r := c.HTTP.Routers[name]; r == nil && rule == "" || r != nil && r.Rule == rule {
					return
				}
			case <-time.After(rereadWatched - time.Second):
				t.Fatalf("%s with the rule %q is not read", name, rule)
			}
		}
	}
}

// TestFilesBehindLinks checks that changes are read where a directory or a file is a symbolic link, and
// after a directory was removed and made again.
func TestFilesBehindLinks(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, rule string) {
		t.Helper()
		must(os.MkdirAll(filepath.Dir(at(name)), 0o755))
		text := "http:\n  routers:\n    a:\n      rule: " + rule + "\n      service: s\n"
		must(os.WriteFile(at(name), []byte(text), 0o644))
	}
	swap := func(link, to string) {
		t.Helper()
		must(os.Symlink(to, at("link.new")))
		must(os.Rename(at("link.new"), at(link)))
	}
	for name, c := range map[string]struct {
		file  gateway.File
		setUp func()
		steps []func()
	}{
		"a linked directory": {gateway.File{Directory: at("one", "current")},
			func() { write("one/v1/a.yml", "1"); write("one/v2/a.yml", "3"); swap("one/current", "v1") },
			[]func(){func() { write("one/v1/a.yml", "2") }, func() { swap("one/current", "v2") },
				func() { write("one/v2/a.yml", "4") }}},
		"a linked directory in another": {gateway.File{Directory: at("two")},
			func() { write("two-far/a.yml", "1"); must(os.Mkdir(at("two"), 0o755)); swap("two/sub", "../two-far") },
			[]func(){func() { write("two-far/a.yml", "2") }, func() { write("two-far/a.yml", "3") }}},
		"a linked file": {gateway.File{Filename: at("three", "a.yml")},
			func() {
				write("three-far/x.yml", "1")
				must(os.Mkdir(at("three"), 0o755))
				swap("three/a.yml", "../three-far/x.yml")
			},
			[]func(){func() { write("three-far/x.yml", "2") }, func() { write("three-far/x.yml", "3") }}},
		"a directory above that is linked": {gateway.File{Filename: at("four", "current", "conf", "a.yml")},
			func() { write("four/v1/conf/a.yml", "1"); write("four/v2/conf/a.yml", "2"); swap("four/current", "v1") },
			[]func(){func() { swap("four/current", "v2") }, func() { write("four/v2/conf/a.yml", "3") }}},
		"a volume of Kubernetes": {gateway.File{Directory: at("five")},
			func() {
				write("five/..v1/a.yml", "1")
				swap("five/..data", "..v1")
				swap("five/a.yml", "..data/a.yml")
			},
			[]func(){
				func() {
					write("five/..v2/a.yml", "2")
					swap("five/..data", "..v2")
					must(os.RemoveAll(at("five", "..v1")))
				},
				func() {
					write("five/..v3/a.yml", "3")
					swap("five/..data", "..v3")
					must(os.RemoveAll(at("five", "..v2")))
				}}},
		"a directory that is made again": {gateway.File{Directory: at("six", "up", "conf")},
			func() { write("six/up/conf/a.yml", "1") },
			[]func(){
				func() { must(os.RemoveAll(at("six", "up", "conf"))); write("six/up/conf/a.yml", "2") },
				func() { write("six/up/conf/a.yml", "3") },
				func() { must(os.RemoveAll(at("six", "up"))); write("six/up/conf/a.yml", "4") },
				func() { must(os.Rename(at("six", "up"), at("six", "old"))); write("six/up/conf/a.yml", "5") },
				func() { write("six/up/conf/a.yml", "6") }}},
	} {
		t.Run(name, func(t *testing.T) {
			c.setUp()
			until := followFiles(t, c.file)
			until("a@file", "1")
			for i, step := range c.steps {
				step()
				until("a@file", fmt.Sprint(i+2))
			}
		})
	}
}

// TestFilesThatComeLater checks that a provider whose directory does not exist reads it when it does, and
// that routers end with their file.
func TestFilesThatComeLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "up", "conf")
	until := followFiles(t, gateway.File{Directory: dir})
	until("a@file", "")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a.toml")
	if err := os.WriteFile(file, []byte("[http.routers.a]\nrule = \"1\"\nservice = \"s\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	until("a@file", "1")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until("a@file", "")
}

// TestChangeAfterFirstRead checks that a change is read that comes directly after the first
// configuration.
func TestChangeAfterFirstRead(t *testing.T) {
	dir := t.TempDir()
	write := func(rule string) {
		text := "http:\n  routers:\n    a:\n      rule: " + rule + "\n      service: s\n"
		if err := os.WriteFile(filepath.Join(dir, "a.yml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("Path(`/1`)")
	f := &Files{gateway.File{Directory: dir}, slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var rules []string
	f.Follow(ctx, func(c gateway.Config, _ []traefik.Problem) {
		if rules = append(rules, c.HTTP.Routers["a@file"].Rule); len(rules) == 1 {
			write("Path(`/2`)")
			return
		}
		cancel()
	})
	if len(rules) != 2 || rules[1] != "Path(`/2`)" {
		t.Errorf("rules that were read: %q", rules)
	}
}

// TestConstantChanges checks that changes are reported while others follow without a pause, for
// example those of a log in the same directory.
func TestConstantChanges(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWatcher(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Set([]string{dir})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for tick := time.NewTicker(settle / 20); ctx.Err() == nil; <-tick.C {
			if err := os.WriteFile(filepath.Join(dir, "log"), []byte("line"), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
	reported := false
	w.Follow(ctx, func() {
		reported = true
		cancel()
	})
	if !reported {
		t.Error("no change is reported while others follow")
	}
}
