// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package chart_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

// mutation evaluates a MutatingAdmissionPolicy of one JSON patch with the API
// server's own compiler and patcher.
type mutation struct {
	constraints *admissionregistrationv1.MatchResources
	patcher     patch.Patcher
	compiler    *admissioncel.CompositedCompiler
}

func compileMutation(t *testing.T, p *admissionregistrationv1.MutatingAdmissionPolicy) mutation {
	t.Helper()
	if *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("The policy lets pass what it cannot change: failurePolicy %s", *p.Spec.FailurePolicy)
	}
	if len(p.Spec.Mutations) != 1 || p.Spec.Mutations[0].JSONPatch == nil || len(p.Spec.MatchConditions) != 0 {
		t.Fatalf("The policy is not of one JSON patch without conditions: %v", p.Spec)
	}
	compiler := compileVariables(t, p.Spec.Variables)
	evaluator := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: p.Spec.Mutations[0].JSONPatch.Expression},
		admissioncel.OptionalVariableDeclarations{HasPatchTypes: true}, environment.NewExpressions)
	for _, err := range evaluator.CompilationErrors() {
		t.Fatal(err)
	}
	return mutation{constraints: p.Spec.MatchConstraints, patcher: patch.NewJSONPatcher(evaluator), compiler: compiler}
}

// apply returns what the policy makes of a write's new object.
func (m mutation) apply(t *testing.T, w write) runtime.Object {
	t.Helper()
	versioned := w.versioned(t)
	if !matches(t, m.constraints, versioned) {
		return w.new
	}
	mutated, err := m.patcher.Patch(m.compiler.CreateContext(t.Context()), patch.Request{
		MatchedResource:     versioned.GetResource(),
		VersionedAttributes: versioned,
		ObjectInterfaces:    admission.NewObjectInterfacesFromScheme(scheme.Scheme),
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatal(err)
	}
	return mutated
}
