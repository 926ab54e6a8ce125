package provider

import (
	"context"
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
	f, err := NewFiles(gateway.File{Directory: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	states := make(chan gateway.Config)
	var following sync.WaitGroup
	following.Go(func() {
		f.Follow(ctx, func(c gateway.Config, _ []traefik.Problem) {
			select {
			case states <- c:
			case <-ctx.Done():
			}
		})
	})
	defer following.Wait()
	defer cancel()
	until := func(name, rule string) {
		t.Helper()
		for {
			select {
			case c := <-states:
				if r := c.HTTP.Routers[name]; r != nil && r.Rule == rule {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s with the rule %s is not read", name, rule)
			}
		}
	}
	until("a@file", "Path(`/1`)")
	write("a.yml", "Path(`/2`)")
	until("a@file", "Path(`/2`)")
	write("sub/b.yaml", "Path(`/3`)")
	until("b@file", "Path(`/3`)")
	write("sub/b.yaml", "Path(`/4`)")
	until("b@file", "Path(`/4`)")
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
	f, err := NewFiles(gateway.File{Directory: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
