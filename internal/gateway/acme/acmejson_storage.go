package acme

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/certmagic"
)

// split returns the parts of a key.
func split(key string) (resolver, kind, id string, err error) {
	parts := strings.Split(key, "/")
	resolver, err = url.PathUnescape(parts[0])
	switch {
	case err != nil:
	case len(parts) == 2 && parts[1] == accountKind:
		return resolver, parts[1], "", nil
	case len(parts) == 3 && (parts[1] == certificateKind || parts[1] == attemptKind):
		return resolver, parts[1], parts[2], nil
	}
	return "", "", "", fmt.Errorf("acme.json has no place for %s", key)
}

// find returns the index of the certificate.
func (d *resolverData) find(id string) int {
	return slices.IndexFunc(d.Certificates, func(e entry) bool { return e.id == id })
}

// Store implements certmagic.Storage.
func (s *jsonFile) Store(_ context.Context, key string, value []byte) error {
	resolver, kind, id, err := split(key)
	if err != nil {
		return err
	}
	return s.change(func(all map[string]*resolverData) {
		d := all[resolver]
		if d == nil {
			d = &resolverData{}
			all[resolver] = d
		}
		switch at := d.find(id); {
		case kind == accountKind:
			d.Account = value
		case kind == attemptKind:
			if d.Attempts == nil {
				d.Attempts = map[string]json.RawMessage{}
			}
			d.Attempts[id] = value
		case at >= 0:
			d.Certificates[at].raw = value
		default:
			d.Certificates = append(d.Certificates, entry{id, value})
		}
	})
}

// Load implements certmagic.Storage.
func (s *jsonFile) Load(_ context.Context, key string) ([]byte, error) {
	resolver, kind, id, err := split(key)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return nil, err
	}
	d := all[resolver]
	if d == nil {
		return nil, fs.ErrNotExist
	}
	var value json.RawMessage
	switch at := d.find(id); {
	case kind == accountKind:
		value = d.Account
	case kind == attemptKind:
		value = d.Attempts[id]
	case at >= 0:
		value = d.Certificates[at].raw
	}
	if len(value) == 0 || string(value) == "null" {
		return nil, fs.ErrNotExist
	}
	return value, nil
}

// Delete implements certmagic.Storage.
func (s *jsonFile) Delete(_ context.Context, key string) error {
	resolver, kind, id, err := split(key)
	if err != nil {
		return err
	}
	return s.change(func(all map[string]*resolverData) {
		d := all[resolver]
		if d == nil {
			return
		}
		switch at := d.find(id); {
		case kind == accountKind:
			d.Account = nil
		case kind == attemptKind:
			delete(d.Attempts, id)
		case at >= 0:
			d.Certificates = slices.Delete(d.Certificates, at, at+1)
		}
	})
}

// Exists implements certmagic.Storage.
func (s *jsonFile) Exists(ctx context.Context, key string) bool {
	_, err := s.Load(ctx, key)
	return err == nil
}

// List implements certmagic.Storage, for the directories of certificates and attempts.
func (s *jsonFile) List(_ context.Context, path string, _ bool) ([]string, error) {
	resolver, kind, _, err := split(path + "/-")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil || all[resolver] == nil {
		return nil, err
	}
	var keys []string
	if kind == attemptKind {
		for _, id := range slices.Sorted(maps.Keys(all[resolver].Attempts)) {
			keys = append(keys, path+"/"+id)
		}
		return keys, nil
	}
	for _, e := range all[resolver].Certificates {
		keys = append(keys, path+"/"+e.id)
	}
	return keys, nil
}

// Stat implements certmagic.Storage.
func (s *jsonFile) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	value, err := s.Load(ctx, key)
	return certmagic.KeyInfo{Key: key, Size: int64(len(value)), IsTerminal: true}, err
}

// Lock implements certmagic.Storage, between the goroutines of this process.
func (s *jsonFile) Lock(ctx context.Context, name string) error {
	for {
		s.mu.Lock()
		held := s.locked[name]
		if held == nil {
			s.locked[name] = make(chan struct{})
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Unlock implements certmagic.Storage.
func (s *jsonFile) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.locked[name]; held != nil {
		close(held)
		delete(s.locked, name)
	}
	return nil
}
