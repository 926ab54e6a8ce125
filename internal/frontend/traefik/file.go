package traefik

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Files returns the configuration in files of Traefik's file provider, and what is wrong
// with it. A path is a file or a directory, whose *.yml, *.yaml and *.toml files count,
// also those of its subdirectories, sorted by name. All names are NAME@file. Where the
// definitions of two files conflict, that of the first one stays.
func Files(paths []string) (gateway.Config, []Problem) {
	var m merger
	var problems []Problem
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			problems = append(problems, Problem{Source: path, Text: err.Error()})
		}
		for _, file := range files {
			r := &reporter{source: file, provider: "file"}
			var c gateway.Config
			// A configuration that is not complete is dropped.
			if err := recovery.Object(file, func() { c = r.decodeFile(file); qualifyConfig(&c, "file") }); err != nil {
				c = gateway.Config{}
				r.fail("", "%v", err)
			}
			m.add(provided{file, &c})
			problems = append(problems, r.problems...)
		}
	}
	return m.config, append(problems, m.problems...)
}

// filesOf returns the files at a path. Hidden directories, such as ..data of mounted
// Kubernetes volumes, do not count: their files have links beside them.
func filesOf(path string) (files []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", reason(err))
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the directory: %w", reason(err))
	}
	var below []error
	for _, e := range entries {
		at := filepath.Join(path, e.Name())
		info, err := os.Stat(at)
		switch {
		case err != nil:
			below = append(below, fmt.Errorf("read %s: %w", e.Name(), reason(err)))
		case info.IsDir() && !strings.HasPrefix(e.Name(), "."):
			more, err := filesOf(at)
			files = append(files, more...)
			below = append(below, err)
		case !info.IsDir() && parserOf(at) != nil:
			files = append(files, at)
		}
	}
	return files, errors.Join(below...)
}

// reason removes the path from an error of the file system: problems name it.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// parserOf returns the parser for a file's extension, or nil.
func parserOf(path string) func([]byte) (*Node, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yml", ".yaml":
		return YAML
	case ".toml":
		return TOML
	}
	return nil
}

// decodeFile decodes one file. A file that cannot be parsed has no objects.
func (r *reporter) decodeFile(path string) gateway.Config {
	parse := parserOf(path)
	if parse == nil {
		r.fail("", "the extension %q is not known: want .yml, .yaml or .toml", filepath.Ext(path))
		return gateway.Config{}
	}
	text, err := os.ReadFile(path)
	if err == nil {
		text, err = expand(path, text)
	}
	var root *Node
	if err == nil {
		root, err = parse(text)
	}
	if err != nil {
		r.fail("", "%v", reason(err))
		return gateway.Config{}
	}
	c := r.decodeConfig(root, "")
	for name := range c.TLS.Stores {
		if name != "default" {
			r.warn(r.object(tlsStore, name), "only the store %q is in use", "default")
		}
	}
	c.TLS.Certificates = slices.DeleteFunc(c.TLS.Certificates, func(cert gateway.Certificate) bool {
		faulty := cert.CertFile == "" || cert.KeyFile == ""
		if faulty {
			r.fail("certificate "+cert.CertFile, "it has no %s", missing(cert))
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
