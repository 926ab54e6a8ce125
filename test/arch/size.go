package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits are the largest sizes that a reader can survey.
type Limits struct {
	// Lines are those of one folder's own code: without tests, generated files, blank
	// lines and comments.
	Lines int
	// Files are those of one folder without its tests; 0 is no limit.
	Files int
	// Methods are those of one type, Interface those of one interface with the
	// interfaces that it embeds.
	Methods, Interface int
}

// TooLarge returns what exceeds the limits in the trees below root, one line each.
func TooLarge(root string, trees []string, limit Limits) (found []string, err error) {
	folders := map[string]*folder{}
	for _, tree := range trees {
		if err := addTree(folders, root, tree); err != nil {
			return nil, err
		}
	}
	for dir, f := range folders {
		if f.lines > limit.Lines {
			found = append(found, fmt.Sprintf("%s has %d lines, want at most %d", dir, f.lines, limit.Lines))
		}
		if limit.Files > 0 && f.files > limit.Files {
			found = append(found, fmt.Sprintf("%s has %d files, want at most %d", dir, f.files, limit.Files))
		}
		for name, n := range f.methods {
			if n > limit.Methods {
				found = append(found, fmt.Sprintf("%s.%s has %d methods, want at most %d", dir, name, n, limit.Methods))
			}
		}
		for name, i := range f.interfaces {
			if n := methodsOf(folders, dir, i); n > limit.Interface {
				found = append(found,
					fmt.Sprintf("interface %s.%s has %d methods, want at most %d", dir, name, n, limit.Interface))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// addTree adds the packages below root/tree to folders, by their paths below root.
func addTree(folders map[string]*folder, root, tree string) error {
	return filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, "_bpfel.go"):
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if folders[dir] == nil {
			folders[dir] = &folder{methods: map[string]int{}, interfaces: map[string]*ast.InterfaceType{},
				imports: map[string]string{}}
		}
		return folders[dir].add(path)
	})
}

// folder is what counts of a package.
type folder struct {
	files      int
	lines      int
	methods    map[string]int
	interfaces map[string]*ast.InterfaceType
	// imports are the folders of this module that the package imports, by name.
	imports map[string]string
}

func (f *folder) add(path string) error {
	files := token.NewFileSet()
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f.files++
	f.lines += codeLines(source)
	for _, i := range file.Imports {
		imported := strings.Trim(i.Path.Value, `"`)
		if dir, ours := strings.CutPrefix(imported, "fairlead/"); ours {
			f.imports[filepath.Base(dir)] = dir
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				f.methods[receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					if i, ok := s.Type.(*ast.InterfaceType); ok {
						f.interfaces[s.Name.Name] = i
					}
				}
			}
		}
	}
	return nil
}

// codeLines counts the lines with code.
func codeLines(source []byte) int {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(source)), source, nil, 0)
	code := map[int]bool{}
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return len(code)
		}
		first := files.Position(at).Line
		for n := range strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1 {
			code[first+n] = true
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// methodsOf counts the methods of an interface of a folder. An embedded interface of
// another module counts as one method.
func methodsOf(folders map[string]*folder, dir string, i *ast.InterfaceType) (n int) {
	for _, m := range i.Methods.List {
		if len(m.Names) > 0 {
			n += len(m.Names)
			continue
		}
		in, name := dir, ""
		switch of := m.Type.(type) {
		case *ast.Ident:
			name = of.Name
		case *ast.SelectorExpr:
			if from, ok := of.X.(*ast.Ident); ok {
				in, name = folders[dir].imports[from.Name], of.Sel.Name
			}
		}
		if f := folders[in]; f != nil && f.interfaces[name] != nil {
			n += methodsOf(folders, in, f.interfaces[name])
		} else {
			n++
		}
	}
	return n
}
