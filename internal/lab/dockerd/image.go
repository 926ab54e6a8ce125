package dockerd

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Import makes an image of one static program, which its containers run under
// the image's name with the arguments given to `docker run`.
func (e *Engine) Import(ctx context.Context, name, program string) error {
	f, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	defer f.Close()
	var said strings.Builder
	cmd := e.Docker(ctx, "import", "--change", fmt.Sprintf("ENTRYPOINT [%q]", "/"+name), "-", name)
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	err = errors.Join(pack(in, name, f), in.Close())
	if err = errors.Join(cmd.Wait(), err); err != nil {
		return fmt.Errorf("import %s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// pack writes a root filesystem that holds the program alone.
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
