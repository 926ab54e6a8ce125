package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// contents returns the files of the machine's initramfs by their paths in the guest.
func (m Machine) contents(ctx context.Context, command []string) (map[string][]byte, error) {
	init, err := m.Kernel.arch.build(ctx, "build", "fairlead/test/vm/guest")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"/init": init}
	order := Order{Command: command}
	modules, err := m.Kernel.Files(m.Modules...)
	if err != nil {
		return nil, err
	}
	for _, file := range modules {
		at := "/modules/" + filepath.Base(file)
		order.Modules = append(order.Modules, at)
		if files[at], err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	for _, tool := range m.Tools {
		if m.Kernel.arch.busybox {
			files["/bin/"+tool], err = os.ReadFile(m.Kernel.busybox)
		} else {
			err = addTool(ctx, files, tool)
		}
		if err != nil {
			return nil, err
		}
	}
	files[OrderFile], err = json.Marshal(order)
	return files, err
}

// addTool adds a command of the host and its shared libraries, each at its path on the host. The
// loader (ldd) lists the libraries.
func addTool(ctx context.Context, files map[string][]byte, tool string) error {
	path, err := exec.LookPath(tool)
	if err != nil {
		return fmt.Errorf("find a tool for the guest: %w: run test/install-debian", err)
	}
	// The PATH of the tests is a folder of links (test/path).
	if target, err := os.Readlink(path); err == nil && filepath.IsAbs(target) {
		path = target
	}
	libraries, err := exec.CommandContext(ctx, "ldd", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("find the libraries of %s: %w\n%s", path, err, libraries)
	}
	for _, name := range append(strings.Fields(string(libraries)), path) {
		if !filepath.IsAbs(name) {
			continue
		}
		if files[name], err = os.ReadFile(name); err != nil {
			return err
		}
	}
	return nil
}

// build builds a static binary of this project with a go command, and returns its content.
func (a architecture) build(ctx context.Context, command ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "fairlead-vm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "binary")
	pkg := len(command) - 1
	// The kernel of a guest copies the whole file.
	args := append(command[:pkg:pkg], "-buildvcs=false", "-ldflags=-s -w", "-o", binary, command[pkg])
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+a.goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return os.ReadFile(binary)
}
