package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// links are the links that attach programs, by the names of their pins.
type links struct {
	pins   pins
	byName map[string]link.Link
}

// attach creates a link under a name, or replaces the program of an existing one.
func (s links) attach(name string, prog *ebpf.Program, make func() (link.Link, error)) error {
	if l, ok := s.byName[name]; ok {
		if living(l) && l.Update(prog) == nil {
			return s.repin(name, l)
		}
		// Its interface or cgroup is gone, or another program has detached it.
		if err := s.detach(name); err != nil {
			return err
		}
	}
	l, err := make()
	if err != nil {
		return fmt.Errorf("attach eBPF program %s: %w", name, err)
	}
	s.byName[name] = l
	if s.pins == "" {
		return nil
	}
	if err := l.Pin(s.pins.link(name)); err != nil {
		return errors.Join(fmt.Errorf("pin eBPF link %s: %w", name, err), s.detach(name))
	}
	return nil
}

// detach deletes the link of that name. A missing link is no error.
func (s links) detach(name string) error {
	l, ok := s.byName[name]
	if !ok {
		return nil
	}
	delete(s.byName, name)
	var err error
	if s.pins != "" {
		if err = os.Remove(s.pins.link(name)); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, l.Close())
}

// adopt opens the links that another process has pinned.
func (s links) adopt() error {
	if s.pins == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(string(s.pins), "links"))
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for _, e := range entries {
		l, err := link.LoadPinnedLink(s.pins.link(e.Name()), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just gone
		}
		if err != nil {
			return fmt.Errorf("open pinned eBPF link %s: %w", e.Name(), err)
		}
		s.byName[e.Name()] = l
	}
	return nil
}

// pinned reports whether a link needs no pin, or has one. A filter of an older kernel needs none.
func (s links) pinned(name string) bool {
	_, attached := s.byName[name]
	return s.pins == "" || !attached || unix.Access(s.pins.link(name), unix.F_OK) == nil
}

// repin pins a link again whose pin another program removed.
func (s links) repin(name string, l link.Link) error {
	if s.pinned(name) {
		return nil
	}
	if err := errors.Join(l.Unpin(), l.Pin(s.pins.link(name))); err != nil {
		return fmt.Errorf("pin eBPF link %s: %w", name, err)
	}
	return nil
}

// close closes the links. What is pinned stays in force.
func (s links) close() error {
	var errs []error
	for _, l := range s.byName {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
