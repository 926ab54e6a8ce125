package dockerd

import (
	"archive/tar"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"fairlead/internal/escape"
)

// ErrDynamic means that a program needs shared libraries. An image with the
// program alone lacks them, and its containers would fail with "no such file or
// directory".
var ErrDynamic = errors.New("it is dynamically linked: build it with CGO_ENABLED=0")

// Static checks that a program is statically linked. Returns ErrDynamic if it needs an
// ELF interpreter, and another error if it is not an ELF file.
func Static(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return ErrDynamic
	}
	return nil
}

// Import creates an image of the given name with one static program as its entry
// point. Returns ErrDynamic if the program is dynamically linked.
func (e *Engine) Import(ctx context.Context, name, program string) error {
	if err := Static(program); err != nil {
		return fmt.Errorf("import %s of %s: %w", name, program, err)
	}
	f, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	defer f.Close()
	return e.archive(ctx, name, "/"+name, func(to io.Writer) error { return pack(to, name, f) })
}

// ImportEmpty creates an image of the given name without files. Its entry point is a program of a volume. It takes the
// engine less time than Import, which reads the whole program several times.
func (e *Engine) ImportEmpty(ctx context.Context, name, program string) error {
	return e.archive(ctx, name, program, func(to io.Writer) error { return tar.NewWriter(to).Close() })
}

// archive creates an image from a tar archive that write writes.
func (e *Engine) archive(ctx context.Context, name, program string, write func(io.Writer) error) error {
	var said strings.Builder
	cmd := e.Docker(ctx, "import", "--change", fmt.Sprintf("ENTRYPOINT [%q]", program), "-", name)
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	err = errors.Join(write(in), in.Close())
	if err = errors.Join(cmd.Wait(), err); err != nil {
		return fmt.Errorf("import %s: %w: %s", name, err, escape.OneLine(said.String()))
	}
	return nil
}

// pack writes a root filesystem with nothing but the program, as a tar archive.
func pack(to io.Writer, name string, program *os.File) error {
	info, err := program.Stat()
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.Copy(w, program); err != nil {
		return err
	}
	return w.Close()
}
