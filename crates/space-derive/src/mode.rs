//! The mode parameter: finding it, and putting a mode in its place.

use proc_macro2::Ident;
use syn::{
    Generics, Path, QSelf, Type, TypeParam, TypeParamBound, parse_quote,
    visit::{self, Visit},
    visit_mut::{self, VisitMut},
};

/// The type parameter that is bounded by `Mode`.
pub(crate) fn parameter(generics: &Generics) -> Option<&TypeParam> {
    generics.type_params().find(|parameter| {
        let by_predicate = generics.where_clause.iter().flat_map(|clause| {
            clause
                .predicates
                .iter()
                .filter_map(|predicate| match predicate {
                    syn::WherePredicate::Type(predicate) => match &predicate.bounded_ty {
                        Type::Path(bounded) if bounded.path.is_ident(&parameter.ident) => {
                            Some(&predicate.bounds)
                        }
                        _ => None,
                    },
                    _ => None,
                })
        });
        parameter
            .bounds
            .iter()
            .chain(by_predicate.flatten())
            .any(is_mode)
    })
}

fn is_mode(bound: &TypeParamBound) -> bool {
    match bound {
        TypeParamBound::Trait(bound) => {
            let last = bound.path.segments.last();
            last.is_some_and(|segment| segment.ident == "Mode")
        }
        _ => false,
    }
}

/// Whether a type is the parameter.
pub(crate) fn is(ty: &Type, parameter: &Ident) -> bool {
    matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident(parameter))
}

/// Whether a type mentions the parameter.
pub(crate) fn mentions(ty: &Type, parameter: &Ident) -> bool {
    struct Search<'p> {
        parameter: &'p Ident,
        found: bool,
    }
    impl<'ast> Visit<'ast> for Search<'_> {
        fn visit_path(&mut self, path: &'ast Path) {
            let first = path.segments.first();
            self.found |= path.leading_colon.is_none()
                && first.is_some_and(|segment| segment.ident == *self.parameter);
            visit::visit_path(self, path);
        }
    }
    let mut search = Search {
        parameter,
        found: false,
    };
    search.visit_type(ty);
    search.found
}

/// The type with `mode` in place of the parameter: `M` becomes the mode, and `M::Of<..>` its
/// associated type.
pub(crate) fn replace(ty: &Type, parameter: &Ident, mode: &Type) -> Type {
    struct Replace<'p> {
        parameter: &'p Ident,
        mode: &'p Type,
    }
    impl VisitMut for Replace<'_> {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::Path(path) = ty {
                let plain = path.qself.is_none() && path.path.leading_colon.is_none();
                let first = path.path.segments.first();
                if plain && first.is_some_and(|segment| segment.ident == *self.parameter) {
                    if path.path.segments.len() == 1 {
                        *ty = self.mode.clone();
                        return;
                    }
                    let rest = path.path.segments.iter().skip(1).cloned();
                    let mut qualified: Path = parse_quote!(::space_core::Mode);
                    let position = qualified.segments.len();
                    qualified.segments.extend(rest);
                    path.path = qualified;
                    path.qself = Some(QSelf {
                        lt_token: Default::default(),
                        ty: Box::new(self.mode.clone()),
                        position,
                        as_token: Some(Default::default()),
                        gt_token: Default::default(),
                    });
                }
            }
            visit_mut::visit_type_mut(self, ty);
        }
    }
    let mut ty = ty.clone();
    Replace { parameter, mode }.visit_type_mut(&mut ty);
    ty
}
