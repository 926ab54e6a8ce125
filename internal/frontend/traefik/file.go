package traefik

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
)

// Files returns the configuration in files of Traefik's file provider, and what is wrong
// with it. A path is a file or a directory, whose *.yml, *.yaml and *.toml files count,
// also those of its subdirectories, sorted by name. All names are NAME@file. Where the
// definitions of two files conflict, that of the first one stays.
func Files(paths []string) (gateway.Config, []Problem) {
	r := NewFileSet(paths...).Read(time.Time{})
	return r.Config, r.Problems
}

// reason removes the path from an error of the file system: problems name it.
func reason(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// parserOf returns the parser for a file's extension, or nil.
func parserOf(path string) func([]byte) (*tree.Node, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yml", ".yaml":
		return tree.YAML
	case ".toml":
		return tree.TOML
	}
	return nil
}

// readRegular returns the text of a regular file. Opening anything else could wait, for example for a
// program that writes to a pipe.
func readRegular(path string) ([]byte, error) {
	if parserOf(path) == nil {
		return nil, fmt.Errorf("the extension %q is not known: want .yml, .yaml or .toml", filepath.Ext(path))
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", reason(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("read the file: it is not a regular file")
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", reason(err))
	}
	return text, nil
}

// decodeFile decodes the text of a file. An error means that it cannot be parsed.
func decodeFile(path string, text []byte) (part, error) {
	text, err := expand(path, text)
	if err != nil {
		return part{}, err
	}
	root, err := parserOf(path)(text)
	if err != nil {
		return part{}, err
	}
	r := &reporter{source: path, provider: "file"}
	c := r.decodeTree(root)
	qualifyConfig(&c, "file")
	return part{config: c, problems: r.problems}, nil
}

// decodeTree decodes the tree of a file.
func (r *reporter) decodeTree(root *tree.Node) gateway.Config {
	c := r.decodeConfig(root, "")
	for name := range c.TLS.Stores {
		if name != "default" {
			r.warn(r.object(tlsStore, name), "only the store %q is in use", "default")
		}
	}
	c.TLS.Certificates = slices.DeleteFunc(c.TLS.Certificates, func(cert gateway.Certificate) bool {
		faulty := cert.CertFile == "" || cert.KeyFile == ""
		if faulty {
			r.fail("certificate "+gateway.Shown(gateway.SecretKey, "", cert.CertFile), "it has no %s", missing(cert))
		}
		return faulty
	})
	return c
}

func missing(cert gateway.Certificate) string {
	if cert.CertFile == "" {
		return "certFile"
	}
	return "keyFile"
}

// expand executes the templates of a file, such as {{ env "NAME" }}.
func expand(path string, text []byte) ([]byte, error) {
	if !bytes.Contains(text, []byte("{{")) {
		return text, nil
	}
	t, err := parseTemplate(filepath.Base(path), string(text))
	if err != nil {
		return nil, err
	}
	expanded, err := execute(t, nil)
	return []byte(expanded), err
}
