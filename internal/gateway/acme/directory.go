package acme

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"fairlead/internal/jsonsum"

	"github.com/caddyserver/certmagic"
)

// directory is a storage in a directory: one file per value, with a checksum.
type directory struct{ *certmagic.FileStorage }

// Store implements certmagic.Storage.
func (d directory) Store(ctx context.Context, key string, value []byte) error {
	return d.FileStorage.Store(ctx, key, jsonsum.Add(value))
}

// Load implements certmagic.Storage. Files of earlier versions have no checksum.
func (d directory) Load(ctx context.Context, key string) ([]byte, error) {
	text, err := d.FileStorage.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	if _, err := jsonsum.Check(text); err != nil {
		return nil, fmt.Errorf("%s: %w: restore a backup of the file, or delete it", d.Filename(key), err)
	}
	return text, nil
}

// openStorage opens the storage of a resolver: Traefik's acme.json, or a directory.
func openStorage(path string) (certmagic.Storage, error) {
	path = cmp.Or(path, "acme.json")
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return directory{&certmagic.FileStorage{Path: path}}, nil
	}
	return openJSON(path)
}
