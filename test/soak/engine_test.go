package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// engineRole is the role of a process that runs an engine and applies every state that it reads,
// until its standard input ends or it is killed.
const engineRole = "soaked-engine"

// order is the first message to the process.
type order struct {
	// Server is the path of the server host's namespace, Pins the directory of the pins, and Record
	// the path of the state file.
	Server, Pins, Record string
	Facts                plan.Facts
}

// answer is the result of one state.
type answer struct{ Err string }

func engineMain() int {
	if err := runEngine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runEngine() error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var do order
	if err := in.Decode(&do); err != nil {
		return err
	}
	h, err := kernel.Open(do.Server, kernel.Options{Pins: do.Pins})
	if err != nil {
		return err
	}
	e := engine.New(engine.Config{Kernel: h, Flows: h, Inspector: h, Store: file(do.Record), Facts: do.Facts,
		StartProxy: func(ctx context.Context) (engine.Proxy, error) {
			return proxy.Start(ctx, child.Place{Netns: h.Netns()})
		}})
	for {
		var want model.State
		if err := in.Decode(&want); errors.Is(err, io.EOF) {
			return h.Close()
		} else if err != nil {
			return err
		}
		var a answer
		if _, err := e.Set(context.Background(), want); err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// file stores the record in the file with that path, where the next engine finds it.
type file string

// Load implements engine.Store.
func (f file) Load() (r store.Record, err error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// Save implements engine.Store. The file is complete even if the process is killed.
func (f file) Save(r store.Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fresh := string(f) + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, string(f))
}
