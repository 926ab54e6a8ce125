package vm

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// contents returns the files of the machine's initramfs by their paths in the guest. It adds the modules to the order.
func (m Machine) contents(ctx context.Context, order Order) (map[string][]byte, error) {
	init, err := m.Kernel.arch.build(ctx, "build", "fairlead/test/vm/guest")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"/init": init}
	modules, err := m.Kernel.Files(m.Modules...)
	if err != nil {
		return nil, err
	}
	for _, file := range modules {
		at := "/modules/" + filepath.Base(file)
		order.Modules = append(order.Modules, at)
		module, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		files[at] = unsigned(module)
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

// unsigned returns a module without its signature, whose check takes longer in the emulator than the rest of loading.
// The kernel accepts modules without one.
func unsigned(module []byte) []byte {
	// The signature, a header of 12 bytes that ends with its length, and this mark are appended to the module.
	const mark, header = "~Module signature appended~\n", 12
	signed, found := bytes.CutSuffix(module, []byte(mark))
	if !found {
		return module
	}
	length := binary.BigEndian.Uint32(signed[len(signed)-4:])
	return signed[:len(signed)-header-int(length)]
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

// builds has a func() ([]byte, error) per architecture and go command: machines have the guest, and some the tests, in
// common.
var builds sync.Map

// build returns the content of a static binary of this project, which it builds once with a go command.
func (a architecture) build(ctx context.Context, command ...string) ([]byte, error) {
	key := a.goarch + " " + strings.Join(command, " ")
	build, _ := builds.LoadOrStore(key, sync.OnceValues(func() ([]byte, error) {
		return a.compile(context.WithoutCancel(ctx), command)
	}))
	return build.(func() ([]byte, error))()
}

func (a architecture) compile(ctx context.Context, command []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "fairlead-vm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "binary")
	pkg := len(command) - 1
	// The kernel of a guest copies the whole file.
	args := append(command[:pkg:pkg], "-buildvcs=false", "-ldflags=-s -w", "-o", file, command[pkg])
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+a.goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return os.ReadFile(file)
}
