package body

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"fairlead/internal/gateway/middleware/base"
)

// spill stores a body: in memory up to a size, then in a file without a name.
type spill struct {
	// memory is the size of the part in memory, limit that of the whole body; a limit of
	// 0 means none.
	memory, limit int64
	size          int64
	buffer        bytes.Buffer
	file          *os.File
}

// Write appends to the body. It returns errTooLarge if the body exceeds the limit.
func (s *spill) Write(p []byte) (int, error) {
	if s.limit > 0 && s.size+int64(len(p)) > s.limit {
		return 0, base.ErrTooLarge
	}
	s.size += int64(len(p))
	if s.file == nil && s.size <= s.memory {
		return s.buffer.Write(p)
	}
	if s.file == nil {
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	return s.file.Write(p)
}

// open creates the file. It has no name: the kernel deletes it with the last descriptor.
func (s *spill) open() error {
	file, err := os.CreateTemp("", "fairlead-body-")
	if err != nil {
		return fmt.Errorf("store body: %w: set TMPDIR to a writable folder", err)
	}
	s.file = file
	return os.Remove(file.Name())
}

// reader returns a reader from the begin of the body. Only one is used at a time.
func (s *spill) reader() io.Reader {
	memory := bytes.NewReader(s.buffer.Bytes())
	if s.file == nil {
		return memory
	}
	return io.MultiReader(memory, io.NewSectionReader(s.file, 0, s.size-int64(s.buffer.Len())))
}

// close frees the body.
func (s *spill) close() error {
	s.buffer = bytes.Buffer{}
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
