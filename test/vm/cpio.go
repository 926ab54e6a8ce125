package vm

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
)

// The modes of the files in an initramfs: root owns everything, and everything is executable.
const (
	modeFile   = 0o100755
	modeFolder = 0o040755
)

// cpio returns an archive of the files and their parent folders, in the format that the kernel
// requires for an initramfs: newc, see the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst. It is not compressed: an emulated
// machine decompresses more slowly than this machine reads.
func cpio(files map[string][]byte) []byte {
	var b bytes.Buffer
	known := map[string]bool{"/": true}
	var folder func(name string)
	folder = func(name string) {
		if known[name] {
			return
		}
		known[name] = true
		folder(path.Dir(name))
		entry(&b, len(known), name[1:], modeFolder, nil)
	}
	for i, name := range slices.Sorted(maps.Keys(files)) {
		folder(path.Dir(name))
		entry(&b, 1<<16+i, name[1:], modeFile, files[name])
	}
	entry(&b, 0, "TRAILER!!!", 0, nil)
	return b.Bytes()
}

// entry writes a header, the name and the content, each padded to 4 bytes. Most of the 13 numbers
// in a header are 0: owner, time, devices, checksum.
func entry(b *bytes.Buffer, inode int, name string, mode int, content []byte) {
	fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	b.WriteString(name + "\x00")
	pad(b)
	b.Write(content)
	pad(b)
}

func pad(b *bytes.Buffer) { b.Write(make([]byte, -b.Len()&3)) }
