package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// source is what the tests read of a package's source: reflection knows neither
// constants nor functions.
type source struct {
	consts  map[string][]string // string constants by the name of their type; "" for untyped ones
	structs []string            // exported structs with a JSON tag
	funcs   []*ast.FuncDecl     // exported functions and methods
}

// parse reads package pkg/<name>.
func parse(t testing.TB, name string) source {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../../../pkg", name, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("package %s has no source: %v", name, err)
	}
	s := source{consts: map[string][]string{}}
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				s.declare(t, d)
			case *ast.FuncDecl:
				if d.Name.IsExported() {
					s.funcs = append(s.funcs, d)
				}
			}
		}
	}
	return s
}

func (s *source) declare(t testing.TB, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			if d.Tok != token.CONST {
				continue
			}
			typ := ""
			if id, ok := spec.Type.(*ast.Ident); ok {
				typ = id.Name
			}
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					value, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					s.consts[typ] = append(s.consts[typ], value)
				}
			}
		case *ast.TypeSpec:
			st, ok := spec.Type.(*ast.StructType)
			if !ok || !spec.Name.IsExported() {
				continue
			}
			for _, f := range st.Fields.List {
				if f.Tag != nil && strings.Contains(f.Tag.Value, "json:") {
					s.structs = append(s.structs, spec.Name.Name)
					break
				}
			}
		}
	}
}
