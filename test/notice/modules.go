package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is the main package of the binary.
const program = "fairlead/cmd/fairlead"

// module is a module whose packages are linked.
type module struct {
	path, version, dir string
	packages           map[string]bool // by their directories
}

// list adds the modules that are linked into the binary of an architecture.
func list(modules map[string]*module, arch string) error {
	out, err := goCommand(arch, "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", program)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 4 {
			continue
		}
		m := modules[parts[0]]
		if m == nil {
			m = &module{parts[0], parts[1], parts[2], map[string]bool{}}
			modules[parts[0]] = m
		}
		m.packages[parts[3]] = true
	}
	return nil
}

// component reads the licences in the directories of the linked packages, and in their parent
// directories.
func (m *module) component() (component, error) {
	c := component{name: m.path, version: m.version}
	dirs := map[string]bool{m.dir: true}
	for dir := range m.packages {
		for ; strings.HasPrefix(dir, m.dir) && !dirs[dir]; dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return c, fmt.Errorf("read module %s: %w", m.path, err)
		}
		for _, e := range entries {
			if e.IsDir() || !isLicence(e.Name()) && !isNotice(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			path, err := filepath.Rel(m.dir, filepath.Join(dir, e.Name()))
			if err != nil {
				return c, err
			}
			if err := c.read(m.dir, path); err != nil {
				return c, err
			}
		}
	}
	if len(c.licences) == 0 {
		return c, fmt.Errorf("module %s %s has no licence", m.path, m.version)
	}
	return c, nil
}

// standardLibrary returns Go's standard library, in the version that go.mod names, so that a newer
// toolchain writes the same file.
func standardLibrary() (component, error) {
	out, err := goCommand("", "list", "-m", "-f", "{{.GoVersion}}")
	if err != nil {
		return component{}, err
	}
	c := component{name: "Go standard library", version: "go" + strings.TrimSpace(out)}
	root, err := goCommand("", "env", "GOROOT")
	if err != nil {
		return c, err
	}
	for _, name := range []string{"LICENSE", "PATENTS"} {
		if err := c.read(strings.TrimSpace(root), name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// goCommand runs the go command for Linux and the architecture; empty means this machine's
// architecture.
func goCommand(arch string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if arch != "" {
		cmd.Env = append(cmd.Env, "GOARCH="+arch)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
