package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// head is the begin of NOTICE, which ends with libbpf's file LICENSE.BSD-2-Clause.
//
//go:embed head.txt
var head string

// component is a module, or the standard library.
type component struct {
	name, version string
	// licences are SPDX identifiers.
	licences []string
	texts    []text
}

// text is a file of a component, with its path inside the component.
type text struct{ path, body string }

// notice returns the content of NOTICE.
func notice() ([]byte, error) {
	all, err := linked()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(head + "\n")
	for _, c := range all {
		fmt.Fprintf(&b, "%-50s %-40s %s\n", c.name, c.version, strings.Join(c.licences, " and "))
	}
	first := map[string]string{} // the component for which each text was printed first
	for _, c := range all {
		fmt.Fprintf(&b, "\n%s\n%s %s\n", strings.Repeat("=", 78), c.name, c.version)
		for _, t := range c.texts {
			where, printed := first[t.body]
			if printed {
				fmt.Fprintf(&b, "\n%s: the same text as %s\n", t.path, where)
				continue
			}
			first[t.body] = t.path + " of " + c.name
			fmt.Fprintf(&b, "\n%s:\n\n%s\n", t.path, t.body)
		}
	}
	return b.Bytes(), nil
}

// linked returns the components that are linked into the binary of any architecture, by name.
func linked() ([]component, error) {
	modules := map[string]*module{}
	for _, arch := range []string{"amd64", "arm64"} {
		if err := list(modules, arch); err != nil {
			return nil, err
		}
	}
	standard, err := standardLibrary()
	if err != nil {
		return nil, err
	}
	all := []component{standard}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		c, err := modules[name].component()
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// read adds the file to the component, and its identifiers if it is a licence.
func (c *component) read(root, path string) error {
	body, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return fmt.Errorf("read the licence of %s: %w", c.name, err)
	}
	t := text{path, strings.TrimSpace(strings.ReplaceAll(string(body), "\r\n", "\n"))}
	c.texts = append(c.texts, t)
	if !isLicence(path) {
		return nil
	}
	licences := identify(t.body)
	if len(licences) == 0 {
		return fmt.Errorf("%s of %s %s: this licence is not known to test/notice", path, c.name, c.version)
	}
	c.licences = append(c.licences, licences...)
	slices.SortFunc(c.licences, cmp.Compare[string])
	c.licences = slices.Compact(c.licences)
	return nil
}
