package compat

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
)

// printers are the methods that print a value as JSON.
const printers = "fairlead/internal/cli/command"

// Printed returns the types of all values that the packages print as JSON, by their names. A value of type any counts
// with the types that function literals of the package return, and one of a type parameter with the types that the
// package has for parameters of its functions. Types without fields of their own are left out.
func Printed(packages map[string]Package) (map[string]types.Type, error) {
	all := map[string]types.Type{}
	for path, p := range packages {
		for _, file := range p.Files {
			var err error
			ast.Inspect(file, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is || !p.prints(call) {
					return true
				}
				found := []types.Type{p.Info.Types[call.Args[0]].Type}
				if parameter, is := found[0].(*types.TypeParam); is {
					found = p.instantiated(parameter.Obj().Name())
				} else if types.IsInterface(found[0]) && p.Path() != printers {
					found = p.returned()
				}
				if len(found) == 0 {
					err = fmt.Errorf("%s prints a value of an unknown type", path)
				}
				for _, t := range found {
					if t = deref(t); hasFields(t) {
						all[name(t)] = t
					}
				}
				return true
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// hasFields reports whether a value has fields whose names can change, in a list or not.
func hasFields(t types.Type) bool {
	if list, is := t.Underlying().(*types.Slice); is {
		t = deref(list.Elem())
	}
	s, is := t.Underlying().(*types.Struct)
	return is && s.NumFields() > 0
}

// prints reports whether a call prints its only argument as JSON.
func (p Package) prints(call *ast.CallExpr) bool {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is || len(call.Args) != 1 {
		return false
	}
	s := p.Info.Selections[method]
	if s == nil || s.Obj().Pkg() == nil || s.Obj().Pkg().Path() != printers {
		return false
	}
	return s.Obj().Name() == "JSON" || s.Obj().Name() == "JSONLine"
}

// returned returns the types that function literals of the package return as their first of two results of type any.
func (p Package) returned() (all []types.Type) {
	for _, file := range p.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, is := n.(*ast.FuncLit)
			if !is {
				return true
			}
			results := p.Info.Types[literal].Type.(*types.Signature).Results()
			if results.Len() != 2 || !types.IsInterface(results.At(0).Type()) {
				return true
			}
			ast.Inspect(literal.Body, func(n ast.Node) bool {
				if r, is := n.(*ast.ReturnStmt); is && len(r.Results) == 2 {
					all = append(all, p.Info.Types[r.Results[0]].Type)
				}
				return true
			})
			return true
		})
	}
	return all
}

// instantiated returns the types that the package has for the type parameters with a name.
func (p Package) instantiated(parameter string) (all []types.Type) {
	for used, instance := range p.Info.Instances {
		f, is := p.Info.Uses[used].(*types.Func)
		if !is || f.Pkg() != p.Package {
			continue
		}
		parameters := f.Origin().Signature().TypeParams()
		for i := range instance.TypeArgs.Len() {
			t := instance.TypeArgs.At(i)
			if _, is := t.(*types.TypeParam); !is && parameters.At(i).Obj().Name() == parameter {
				all = append(all, t)
			}
		}
	}
	return all
}

// name returns the name of a type for its file.
func name(t types.Type) string {
	text := types.TypeString(t, (*types.Package).Name)
	return strings.NewReplacer("[]", "list-of-", "map[string]", "map-of-", "*", "", "/", "-").Replace(text)
}
