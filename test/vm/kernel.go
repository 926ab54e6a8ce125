package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Kernel is an unpacked kernel package.
type Kernel struct {
	// Image is the file to boot.
	Image string
	// arch is its architecture.
	arch architecture
	// busybox is the file with the tools, if arch.busybox.
	busybox string
	// modules maps the name of a module to its file.
	modules map[string]string
}

// OpenKernel finds the image and the modules in the folder to which test/install-debian unpacks
// them.
func OpenKernel(dir string) (Kernel, error) {
	images, _ := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*"))
	if len(images) != 1 {
		return Kernel{}, fmt.Errorf("open kernel: %s contains %d kernels, not one: remove it and run test/install-debian",
			dir, len(images))
	}
	k := Kernel{Image: images[0], arch: architectureOf(images[0]), busybox: filepath.Join(dir, "bin/busybox"),
		modules: map[string]string{}}
	err := filepath.WalkDir(filepath.Join(dir, "lib/modules"), func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			k.modules[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return Kernel{}, fmt.Errorf("open kernel: %w", err)
	}
	return k, nil
}

// moduleName returns the kernel's name of a module: only file names contain dashes.
func moduleName(file string) string { return strings.ReplaceAll(file, "-", "_") }

// Files returns the files of the modules and of their dependencies, each after the files that it
// needs.
func (k Kernel) Files(modules ...string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		file, ok := k.modules[name]
		if !ok {
			return fmt.Errorf("%s has no module %s", filepath.Base(k.Image), name)
		}
		needed, err := needs(file)
		for _, n := range needed {
			if err == nil {
				err = add(n)
			}
		}
		files = append(files, file)
		return err
	}
	for _, name := range modules {
		if err := add(moduleName(name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// needs reads a module's dependencies from its file. Only an installed kernel has modules.dep.
func needs(file string) ([]string, error) {
	module, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", file, err)
	}
	defer module.Close()
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("read module %s: no section .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", file, err)
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if names, ok := strings.CutPrefix(string(field), "depends="); ok {
			return strings.FieldsFunc(moduleName(names), func(r rune) bool { return r == ',' }), nil
		}
	}
	return nil, nil
}
